-- name: changes_after
SELECT version, thing FROM changes WHERE version > :version ORDER BY version LIMIT 1001
-- name: version
SELECT (SELECT value FROM counters WHERE name = 'changes'), (SELECT value FROM counters WHERE name = 'ends')
