/**
 * Sends a request to this machine without the environment's proxy, which OpenCode's Bun uses even for loopback
 * addresses. Bun connects directly if the request names its own address as the proxy.
 */
export function pastProxy(request: Request): Request {
  const { protocol, origin } = new URL(request.url)
  const isProxied = Boolean(process.env.http_proxy || process.env.HTTP_PROXY)
  return isProxied && protocol === "http:" ? Object.assign(request, { proxy: origin }) : request
}

export const fetchDirectly = (url: string | URL, init?: RequestInit): Promise<Response> =>
  fetch(pastProxy(new Request(url, init)))
