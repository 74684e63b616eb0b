-- name: outbox
/*postgres: WITH page AS MATERIALIZED (
  SELECT seq, left(account, 1000) AS account, left(type, 1000) AS type, data, left(id, 1000) AS id
  FROM gatepost_outbox WHERE refused IS NULL ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED
)
SELECT seq, account, type,
  CASE WHEN size <= :max_data + 4 AND octet_length(data::text) <= :max_data THEN data::text END, id
FROM (SELECT *, pg_column_size(data) AS size, sum(pg_column_size(data)) OVER (ORDER BY seq) AS total FROM page) sized
WHERE total - size < :max_stored ORDER BY seq */
/*sqlite: SELECT 1 WHERE :limit < 0 */
-- name: outbox (citus)
WITH page AS MATERIALIZED (
  SELECT seq, left(account, 1000) AS account, left(type, 1000) AS type, data, left(id, 1000) AS id
  FROM gatepost_outbox WHERE refused IS NULL AND account <> ALL (:without::text[])
  ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED
)
SELECT seq, account, type,
  CASE WHEN size <= :max_data + 4 AND octet_length(data::text) <= :max_data THEN data::text END, id
FROM (SELECT *, pg_column_size(data) AS size, sum(pg_column_size(data)) OVER (ORDER BY seq) AS total FROM page) sized
WHERE total - size < :max_stored ORDER BY seq
-- name: leave_outbox
/*given: seq bigint */
/*postgres: DELETE FROM gatepost_outbox USING given WHERE gatepost_outbox.seq = given.seq */
/*sqlite: SELECT 1 FROM given WHERE seq < 0 */
-- name: refuse_outbox
/*given: seq bigint, refused text */
/*postgres: UPDATE gatepost_outbox SET refused = given.refused FROM given WHERE gatepost_outbox.seq = given.seq */
/*sqlite: SELECT 1 FROM given WHERE seq < 0 */
-- name: refused_outbox
/*postgres: SELECT 1 FROM gatepost_outbox WHERE refused IS NOT NULL LIMIT :limit */
/*sqlite: SELECT 1 WHERE :limit < 0 */
