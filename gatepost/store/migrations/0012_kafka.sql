-- The position of each Kafka consumer group. It is written in the commit that has the entries of the messages before it.

CREATE TABLE kafka_offsets (
  consumer_group text NOT NULL,
  topic text NOT NULL,
  kafka_partition integer NOT NULL,
  next_offset bigint NOT NULL,
  PRIMARY KEY (consumer_group, topic, kafka_partition)
);
