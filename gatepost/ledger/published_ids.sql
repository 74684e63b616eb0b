-- name: insert_published
INSERT INTO published (account, name, event, body) VALUES (:account, :name, :event, :body)
  ON CONFLICT DO NOTHING RETURNING event
-- name: append_published
/*given: account bytea, name bytea, event bytea, body bytea */
INSERT INTO published (account, name, event, body) SELECT account, name, event, body FROM given RETURNING 1
-- name: not_published
/*given: account bytea, name bytea, event bytea, body bytea */
SELECT given.account, given.name FROM given
  WHERE NOT EXISTS (SELECT 1 FROM published p WHERE p.account = given.account AND p.name = given.name)
-- name: published
SELECT event, body FROM published WHERE account = :account AND name = :name
-- name: rewrite_published
UPDATE published SET body = body WHERE account = :account AND name = :name RETURNING event, body
-- name: forget_published
/*given: account bytea, event bytea */
DELETE FROM published /*postgres: USING given */ WHERE /*sqlite: (account, event) IN (SELECT account, event FROM given) */
  /*postgres: published.account = given.account AND published.event = given.event */
