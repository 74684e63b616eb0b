-- name: insert_family
INSERT INTO families (account, id, client, consent, number, leaf, thumbprint, rotated_at, idle_ends_at, ends_at)
  VALUES (:account, :id, :client, :consent, :number, :leaf, :thumbprint, :rotated_at, :idle_ends_at, :ends_at)
-- name: family
SELECT id, client, consent, number, leaf, thumbprint, rotated_at, idle_ends_at, ends_at, ended_at, ended_reason
  FROM families WHERE account = :account AND id = :id
-- name: families_and_consents
/*given: account bytea, id bytea */
SELECT f.account, f.id, f.client, f.consent, f.number, f.leaf, f.thumbprint, f.rotated_at, f.idle_ends_at, f.ends_at, f.ended_at,
    f.ended_reason, c.id, c.client, c.said, c.given_at, c.expires_at, c.ended_at, c.ended_reason
  FROM given JOIN families AS f ON f.account = given.account AND f.id = given.id
    JOIN consents AS c ON c.account = f.account AND c.id = f.consent
-- name: rotate_families
/*given: account bytea, id bytea, number integer, leaf bytea, thumbprint text, rotated_at bigint, idle_ends_at bigint */
UPDATE families AS f SET number = f.number + 1, leaf = given.leaf, thumbprint = given.thumbprint,
    rotated_at = given.rotated_at, idle_ends_at = given.idle_ends_at
  FROM given WHERE f.account = given.account AND f.id = given.id AND f.number = given.number AND f.ended_at IS NULL
  RETURNING 1
-- name: lock_families_to_rotate
/*given: account bytea, id bytea, number integer, leaf bytea, thumbprint text, rotated_at bigint, idle_ends_at bigint */
SELECT given.account, given.id FROM given JOIN families AS f ON f.account = given.account AND f.id = given.id AND f.number = given.number
  WHERE f.ended_at IS NULL /*postgres: FOR UPDATE OF f */
-- name: restart_grace
/*given: account bytea, id bytea, number integer, rotated_at bigint */
UPDATE families AS f SET rotated_at = given.rotated_at
  FROM given WHERE f.account = given.account AND f.id = given.id AND f.number = given.number AND f.ended_at IS NULL
-- name: keep_family
UPDATE families SET idle_ends_at = :idle_ends_at
  WHERE account = :account AND id = :id AND number = :number AND ended_at IS NULL RETURNING 1
-- name: families_of_consent
SELECT id FROM families WHERE account = :account AND consent = :consent AND ended_at IS NULL ORDER BY id
-- name: end_family
UPDATE families SET ended_at = :at, ended_reason = :reason
  WHERE account = :account AND id = :id AND ended_at IS NULL RETURNING client
