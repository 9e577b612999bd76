import { createServer, request } from "node:http"
import type { AddressInfo } from "node:net"

/** An HTTP proxy on loopback that passes everything on, and remembers the addresses. */
export async function startProxy() {
  const seen: string[] = []
  const server = createServer((incoming, outgoing) => {
    const url = incoming.url ?? ""
    seen.push(url)
    const { method, headers } = incoming
    const passed = request(url, { method, headers }, (answer) => {
      outgoing.writeHead(answer.statusCode ?? 502, answer.headers)
      answer.pipe(outgoing)
    })
    passed.on("error", () => outgoing.destroy())
    outgoing.on("close", () => passed.destroy())
    incoming.pipe(passed)
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const { port } = server.address() as AddressInfo
  const close = async () => {
    server.closeAllConnections()
    await new Promise((resolve) => server.close(resolve))
  }
  return { seen, url: `http://127.0.0.1:${port}`, close }
}
