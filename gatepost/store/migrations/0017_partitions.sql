-- Partitions on PostgreSQL. The existing table is the partition of all ids up to a certain day (NAME_before). For later
-- ids, entries and deliveries have a table for each retention class in use (NAME_30), with a partition for each range of
-- time that the service makes ahead (NAME_30_20261117), and one for other rows (NAME_30_rest); NAME_rest is for classes
-- that have no table yet. Attempts do not have their class, so they are partitioned by time alone.
-- Rows of NAME_before and of the rests are deleted one by one when their retention ends: NAME_pruned_by_row.
-- Only attempts have a primary key as a whole, since a key would have to include the retention class.

/*postgres:
DO $$
DECLARE
  first_id text := substring(pg_get_constraintdef(oid) FROM '\\x([0-9a-f]*)')
    FROM pg_constraint WHERE conrelid = to_regclass('entries') AND conname = 'before_partitions';
BEGIN
  ALTER TABLE entries RENAME TO entries_before;
  ALTER INDEX entries_pkey RENAME TO entries_before_pkey;
  CREATE TABLE entries (LIKE entries_before INCLUDING CONSTRAINTS) PARTITION BY RANGE (id);
  ALTER TABLE entries DROP CONSTRAINT before_partitions;
  EXECUTE format('ALTER TABLE entries ATTACH PARTITION entries_before FOR VALUES FROM (MINVALUE) TO (''\x%s'')', first_id);
  ALTER TABLE entries_before DROP CONSTRAINT before_partitions;
  EXECUTE format('CREATE TABLE entries_since PARTITION OF entries FOR VALUES FROM (''\x%s'') TO (MAXVALUE) PARTITION BY LIST (keep_days)', first_id);
  CREATE TABLE entries_rest PARTITION OF entries_since (PRIMARY KEY (account, id)) DEFAULT;
  CREATE TABLE entries_30 PARTITION OF entries_since FOR VALUES IN (30) PARTITION BY RANGE (id);
  CREATE TABLE entries_30_rest PARTITION OF entries_30 (PRIMARY KEY (account, id)) DEFAULT;
  CREATE TABLE entries_400 PARTITION OF entries_since FOR VALUES IN (400) PARTITION BY RANGE (id);
  CREATE TABLE entries_400_rest PARTITION OF entries_400 (PRIMARY KEY (account, id)) DEFAULT;
  CREATE VIEW entries_pruned_by_row AS
    SELECT * FROM entries_before UNION ALL SELECT * FROM entries_rest
    UNION ALL SELECT * FROM entries_30_rest UNION ALL SELECT * FROM entries_400_rest;

  ALTER TABLE deliveries RENAME TO deliveries_before;
  ALTER INDEX deliveries_pkey RENAME TO deliveries_before_pkey;
  ALTER INDEX deliveries_by_endpoint RENAME TO deliveries_before_by_endpoint;
  ALTER INDEX deliveries_by_event RENAME TO deliveries_before_by_event;
  ALTER INDEX deliveries_by_status RENAME TO deliveries_before_by_status;
  ALTER INDEX deliveries_by_code RENAME TO deliveries_before_by_code;
  ALTER INDEX deliveries_by_failure RENAME TO deliveries_before_by_failure;
  CREATE TABLE deliveries (LIKE deliveries_before INCLUDING CONSTRAINTS) PARTITION BY RANGE (id);
  ALTER TABLE deliveries DROP CONSTRAINT before_partitions;
  EXECUTE format('ALTER TABLE deliveries ATTACH PARTITION deliveries_before FOR VALUES FROM (MINVALUE) TO (''\x%s'')', first_id);
  ALTER TABLE deliveries_before DROP CONSTRAINT before_partitions;
  CREATE INDEX deliveries_by_endpoint ON deliveries (account, endpoint, id);
  CREATE INDEX deliveries_by_event ON deliveries (account, event, id);
  CREATE INDEX deliveries_by_status ON deliveries (account, bad_status, id) WHERE bad_status IS NOT NULL;
  CREATE INDEX deliveries_by_code ON deliveries (account, bad_code, id) WHERE bad_code IS NOT NULL;
  CREATE INDEX deliveries_by_failure ON deliveries (account, last_failure, id) WHERE last_failure IS NOT NULL;
  EXECUTE format('CREATE TABLE deliveries_since PARTITION OF deliveries FOR VALUES FROM (''\x%s'') TO (MAXVALUE) PARTITION BY LIST (keep_days)', first_id);
  CREATE TABLE deliveries_rest PARTITION OF deliveries_since (PRIMARY KEY (account, id)) DEFAULT WITH (fillfactor = 80);
  CREATE TABLE deliveries_30 PARTITION OF deliveries_since FOR VALUES IN (30) PARTITION BY RANGE (id);
  CREATE TABLE deliveries_30_rest PARTITION OF deliveries_30 (PRIMARY KEY (account, id)) DEFAULT WITH (fillfactor = 80);
  CREATE VIEW deliveries_pruned_by_row AS
    SELECT * FROM deliveries_before UNION ALL SELECT * FROM deliveries_rest UNION ALL SELECT * FROM deliveries_30_rest;

  ALTER TABLE attempts RENAME TO attempts_before;
  ALTER INDEX attempts_pkey RENAME TO attempts_before_pkey;
  CREATE TABLE attempts (LIKE attempts_before INCLUDING CONSTRAINTS) PARTITION BY RANGE (delivery);
  ALTER TABLE attempts DROP CONSTRAINT before_partitions;
  EXECUTE format('ALTER TABLE attempts ATTACH PARTITION attempts_before FOR VALUES FROM (MINVALUE) TO (''\x%s'')', first_id);
  ALTER TABLE attempts_before DROP CONSTRAINT before_partitions;
  ALTER TABLE attempts ADD PRIMARY KEY (account, delivery, number);
  CREATE TABLE attempts_rest PARTITION OF attempts DEFAULT;
END $$;
*/
