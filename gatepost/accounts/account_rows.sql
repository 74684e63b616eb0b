-- name: insert_account
INSERT INTO accounts (id, name, document) VALUES (:id, :name, :document) ON CONFLICT DO NOTHING RETURNING name
-- name: update_account
UPDATE accounts SET document = :document WHERE id = :id
-- name: account_by_id
SELECT document FROM accounts WHERE id = :id
-- name: account_by_name
SELECT document FROM accounts WHERE name = :name
-- name: lock_account
SELECT document FROM accounts WHERE id = :id /*postgres: FOR UPDATE */
-- name: retention_classes
SELECT DISTINCT document /*postgres: ::json */ -> 'settings' ->> 'retention',
    document /*postgres: ::json */ -> 'settings' ->> 'audit_retention' FROM accounts
-- name: list_accounts
SELECT document FROM accounts WHERE name > :after ORDER BY name LIMIT :limit
