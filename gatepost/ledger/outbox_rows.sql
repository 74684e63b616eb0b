-- name: outbox
/*postgres: SELECT seq, account, type, data::text, id FROM gatepost_outbox WHERE refused IS NULL ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED */
/*sqlite: SELECT 1 WHERE :limit < 0 */
-- name: outbox (citus)
SELECT seq, account, type, data::text, id FROM gatepost_outbox WHERE refused IS NULL AND account <> ALL (:without::text[])
  ORDER BY seq LIMIT :limit FOR UPDATE SKIP LOCKED
-- name: leave_outbox
/*given: seq bigint */
/*postgres: DELETE FROM gatepost_outbox USING given WHERE gatepost_outbox.seq = given.seq */
/*sqlite: SELECT 1 FROM given WHERE seq < 0 */
-- name: refuse_outbox
/*given: seq bigint, refused text */
/*postgres: UPDATE gatepost_outbox SET refused = given.refused FROM given WHERE gatepost_outbox.seq = given.seq */
/*sqlite: SELECT 1 FROM given WHERE seq < 0 */
