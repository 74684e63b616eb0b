-- name: tally
/*given: account bytea, since bigint, span integer, slot integer, what text, count bigint */
INSERT INTO tallies (account, since, span, slot, what, count)
  SELECT account, since, span, slot, what, count FROM given WHERE true
  ON CONFLICT (account, since, span, slot, what) DO UPDATE SET count = tallies.count + excluded.count
-- name: tallied
SELECT since / :interval * :interval, what, sum(count) FROM tallies
  WHERE account = :account AND since >= :since AND since < :until GROUP BY 1, 2
-- name: old_minutes
DELETE FROM tallies WHERE (account, since, span, slot, what) IN (
    SELECT account, since, span, slot, what FROM tallies WHERE span = 60 AND since < :before
      /*reachable: account */ ORDER BY since LIMIT :limit) /*reachable: account */
  RETURNING account, since, what, count
-- name: forget_tallies
DELETE FROM tallies WHERE (account, since, span, slot, what) IN (
    SELECT account, since, span, slot, what FROM tallies WHERE span = 3600 AND since < :before
      /*reachable: account */ ORDER BY since LIMIT :limit) /*reachable: account */
  RETURNING 1
