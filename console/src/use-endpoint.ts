// One endpoint of the account, as it is defined now.
import { useEffect, useState } from 'preact/hooks'
import { read } from './session'
import type { Endpoint, Page } from './types'

const MOST = 50 // pages of endpoints that are searched

/** Null if the endpoint is not listed any more, undefined while it is searched. It is read again for each version. */
export function useEndpoint(id: string | undefined, version: unknown): Endpoint | null | undefined {
  const [endpoint, setEndpoint] = useState<Endpoint | null>()
  useEffect(() => {
    if (!id) return
    const stop = new AbortController()
    const search = async () => {
      let cursor: string | null = ''
      for (let page = 0; page < MOST && cursor !== null; page += 1) {
        const query: Record<string, string> = { view: 'endpoints', limit: '200', ...(cursor && { cursor }) }
        const answer: Page<Endpoint> = await read(query, stop.signal)
        const found = answer.data.find((each) => each.id === id)
        if (found) return setEndpoint(found)
        cursor = answer.next_cursor
      }
      setEndpoint(null)
    }
    search().catch(() => undefined) // the other readings of the page report problems
    return () => stop.abort()
  }, [id, version])
  return endpoint
}
