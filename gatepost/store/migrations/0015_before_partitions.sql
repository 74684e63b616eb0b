-- On PostgreSQL the large tables become partitions of tables with the same names, in three migrations, so that a running
-- service is never stopped for long. This one bounds the ids of existing tables, which takes no scan: they get new rows
-- for seven more days, so that a release that does not know of partitions goes on, even if the next migration is late.

/*postgres:
DO $$
DECLARE
  first_id text := '';
BEGIN
  IF EXISTS (SELECT 1 FROM accounts) THEN
    first_id := substring(to_hex((extract(epoch FROM date_trunc('day', now(), 'UTC') + interval '7 days') * 1000)::bigint + (1::bigint << 48)) FROM 2);
  END IF;
  EXECUTE format('ALTER TABLE entries ADD CONSTRAINT before_partitions CHECK (id < ''\x%s''::bytea) NOT VALID', first_id);
  EXECUTE format('ALTER TABLE deliveries ADD CONSTRAINT before_partitions CHECK (id < ''\x%s''::bytea) NOT VALID', first_id);
  EXECUTE format('ALTER TABLE attempts ADD CONSTRAINT before_partitions CHECK (delivery < ''\x%s''::bytea) NOT VALID', first_id);
END $$;
*/
