/**
 * Keeps a request to a server of this machine from the environment's proxy: OpenCode's Bun sends even those to loopback
 * there. It connects straight to an address that is named as its own proxy, and reads that from the request itself.
 */
export function pastProxy(request: Request): Request {
  const { protocol, origin } = new URL(request.url)
  const isProxied = Boolean(process.env.http_proxy || process.env.HTTP_PROXY)
  return isProxied && protocol === "http:" ? Object.assign(request, { proxy: origin }) : request
}

/** `fetch` from a server of this machine. */
export const fetchDirectly = (url: string | URL, init?: RequestInit): Promise<Response> =>
  fetch(pastProxy(new Request(url, init)))
