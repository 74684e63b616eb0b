-- name: kafka_offsets
SELECT topic, kafka_partition, next_offset FROM kafka_offsets WHERE consumer_group = :consumer_group
-- name: insert_kafka_offset
INSERT INTO kafka_offsets (consumer_group, topic, kafka_partition, next_offset)
  VALUES (:consumer_group, :topic, :kafka_partition, :next_offset)
  ON CONFLICT (consumer_group, topic, kafka_partition) DO NOTHING RETURNING 1
-- name: advance_kafka_offset
UPDATE kafka_offsets SET next_offset = :next_offset
  WHERE consumer_group = :consumer_group AND topic = :topic AND kafka_partition = :kafka_partition
  AND next_offset = :expected RETURNING 1
