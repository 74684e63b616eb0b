-- name: insert_scope
INSERT INTO scopes (account, name, document) VALUES (:account, :name, :document)
-- name: update_scope
UPDATE scopes SET document = :document WHERE account = :account AND name = :name
-- name: scope_by_name
SELECT document FROM scopes WHERE account = :account AND name = :name
-- name: list_scopes
SELECT document FROM scopes WHERE account = :account AND name > :after ORDER BY name LIMIT :limit
-- name: count_scopes
SELECT count(*) FROM scopes WHERE account = :account
-- name: claim_resource
INSERT INTO resources (resource, account) VALUES (:resource, :account) ON CONFLICT DO NOTHING
-- name: resource_owner
SELECT account FROM resources WHERE resource = :resource
-- name: scope_resources
SELECT /*sqlite: json_extract(document, '$.resource') */ /*postgres: document::json ->> 'resource' */
FROM scopes WHERE account = :account
