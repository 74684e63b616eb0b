-- Scans the large tables on PostgreSQL, beside reads and writes, so that the next migration needs no scan.

/*postgres:
ALTER TABLE entries VALIDATE CONSTRAINT before_partitions;
ALTER TABLE deliveries VALIDATE CONSTRAINT before_partitions;
ALTER TABLE attempts VALIDATE CONSTRAINT before_partitions;
*/
