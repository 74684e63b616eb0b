-- name: insert_entries
/*given: account bytea, id bytea, type text, at bigint, actor text, subject text, data text, data_hash bytea, matched integer, keep_days integer, request text, source text */
INSERT INTO entries (account, id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source)
  SELECT account, id, type, at, actor, subject, data, data_hash, matched, keep_days, request, source FROM given
-- name: insert_unsealed
/*given: account bytea, id bytea */
INSERT INTO unsealed (account, id) SELECT account, id FROM given
