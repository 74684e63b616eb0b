-- name: insert_published
INSERT INTO published (account, name, event, body) VALUES (:account, :name, :event, :body)
  ON CONFLICT DO NOTHING RETURNING event
-- name: published
SELECT event, body FROM published WHERE account = :account AND name = :name
-- name: forget_published
/*given: account bytea, event bytea */
DELETE FROM published /*postgres: USING given */ WHERE /*sqlite: (account, event) IN (SELECT account, event FROM given) */
  /*postgres: published.account = given.account AND published.event = given.event */
