// A delivery's request as a command. Signatures are not kept, so the command makes its own from the endpoint's secret.
import type { Delivery, Endpoint } from './types'

const TYPES = { standard: 'application/json', cloudevents: 'application/cloudevents+json' }

export type Header = [name: string, value: string, note?: string]

/** The headers of an attempt begun at `started`, as far as they are known: signatures are not kept. */
export function headers(record: Delivery, endpoint: Endpoint | null, started: string | null): Header[] {
  const at = started ? String(Math.floor(Date.parse(started) / 1000)) : ''
  return [
    ['content-type', TYPES[endpoint?.format ?? 'standard']],
    ['user-agent', 'Gatepost/…', 'the version at that time'],
    ...Object.entries(endpoint?.headers ?? {}).map(([name, value]): Header => [
      name,
      value,
      value === '***' ? 'not shown' : 'as defined now',
    ]),
    ['webhook-id', record.event.id],
    ['webhook-timestamp', at || '…', at ? undefined : 'time of the attempt'],
    ['webhook-signature', `${endpoint?.signing ?? 'v1'},…`, 'not stored'],
  ]
}

export const quoted = (text: string): string => `'${text.replaceAll("'", `'\\''`)}'`

export function curl(record: Delivery, endpoint: Endpoint | null, body: string): string {
  const own = Object.entries(endpoint?.headers ?? {}).map(([name, value]) => `  -H ${quoted(`${name}: ${value}`)} \\`)
  const signed = endpoint?.signing !== 'v1a'
  return [
    '(',
    ...(signed
      ? [`: "\${WEBHOOK_SECRET:?set it to the secret of ${record.endpoint.id}, whsec_…}"`]
      : ['# Signed with an Ed25519 key that only the service has, so this command sends no signature.']),
    `body=${quoted(body)}`,
    'at=$(date +%s)',
    ...(signed
      ? [
          `key=$(printf %s "\${WEBHOOK_SECRET#whsec_}" | base64 -d | od -An -v -tx1 | tr -d ' \\n')`,
          `signature=$(printf '%s.%s.%s' ${record.event.id} "$at" "$body" |`,
          '  openssl dgst -sha256 -mac HMAC -macopt "hexkey:$key" -binary | base64)',
        ]
      : []),
    `curl -gi ${quoted(record.endpoint.url)} \\`,
    `  -H 'content-type: ${TYPES[endpoint?.format ?? 'standard']}' \\`,
    ...own,
    `  -H 'webhook-id: ${record.event.id}' \\`,
    '  -H "webhook-timestamp: $at" \\',
    ...(signed ? ['  -H "webhook-signature: v1,$signature" \\'] : []),
    '  --data-binary "$body"',
    ')',
    '',
  ].join('\n')
}
