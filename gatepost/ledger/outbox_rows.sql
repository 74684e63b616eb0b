-- name: outbox
/*postgres: WITH RECURSIVE page AS MATERIALIZED (
  SELECT seq, left(account, 1000) AS account, left(type, 1000) AS type, data, left(id, 1000) AS id,
    pg_column_size(data) AS stored
  FROM gatepost_outbox
  WHERE refused IS NULL AND seq BETWEEN :first AND :last AND seq <> ALL (:without::bigint[])
    AND account <> ALL (:without_accounts::text[])
  ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED
),
numbered AS MATERIALIZED (SELECT *, row_number() OVER (ORDER BY seq) AS nth FROM page),
measured AS (
  SELECT 0::bigint AS nth, 0::bigint AS size, 0::bigint AS total
  UNION ALL
  SELECT numbered.nth, next.size, measured.total + next.size
  FROM measured JOIN numbered ON numbered.nth = measured.nth + 1 CROSS JOIN LATERAL (
    SELECT CASE WHEN measured.total > :max_bytes THEN NULL WHEN stored > :max_data + 4 THEN stored
      ELSE octet_length(data::text) END::bigint AS size OFFSET 0
  ) next
  WHERE measured.total <= :max_bytes
)
SELECT seq, account, type, CASE WHEN size <= :max_data THEN data::text END, id
FROM measured JOIN numbered USING (nth) WHERE nth = 1 OR total <= :max_bytes ORDER BY seq */
/*sqlite: SELECT 1 WHERE :limit < 0 */
-- name: waiting_outbox
/*postgres: SELECT seq FROM gatepost_outbox WHERE refused IS NULL AND seq <> ALL (:without::bigint[])
  ORDER BY seq LIMIT :limit */
/*sqlite: SELECT 1 WHERE :limit < 0 */
-- name: leave_outbox
/*given: seq bigint */
/*postgres: DELETE FROM gatepost_outbox USING given WHERE gatepost_outbox.seq = given.seq */
/*sqlite: SELECT 1 FROM given WHERE seq < 0 */
-- name: refuse_outbox
/*given: seq bigint, refused text */
/*postgres: UPDATE gatepost_outbox SET refused = given.refused FROM given WHERE gatepost_outbox.seq = given.seq */
/*sqlite: SELECT 1 FROM given WHERE seq < 0 */
-- name: outbox_roles
/*postgres: SELECT pg_get_userbyid(relowner)::text, current_user::text FROM pg_class
  WHERE oid = to_regclass('gatepost_outbox') */
/*sqlite: SELECT 1 WHERE 1 < 0 */
-- name: refused_outbox
/*postgres: SELECT 1 FROM gatepost_outbox WHERE refused IS NOT NULL LIMIT :limit */
/*sqlite: SELECT 1 WHERE :limit < 0 */
