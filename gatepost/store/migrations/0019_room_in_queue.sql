-- Room on the pages of the queue on PostgreSQL: a claim makes a row more than twice as long. If the new version of a row
-- is on the same page as the old one, no index changes.

/*postgres:
ALTER TABLE queue SET (fillfactor = 30);
*/
