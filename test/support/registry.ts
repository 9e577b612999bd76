import { readFileSync } from "node:fs"
import { createServer } from "node:http"
import type { AddressInfo } from "node:net"

/** A package registry on loopback with one package in it, so that an installation takes the way that a user's takes. */
export const startRegistry = async (
  manifest: { name: string; version: string },
  tarball: string,
  integrity: string,
) => {
  const { name, version } = manifest
  const server = createServer((request, response) => {
    if (request.url === `/${name}.tgz`) return void response.end(readFileSync(tarball))
    if (request.url !== `/${name}`) return void response.writeHead(404).end("{}")
    const dist = { tarball: `${url}/${name}.tgz`, integrity }
    const about = { name, "dist-tags": { latest: version }, versions: { [version]: { ...manifest, dist } } }
    response.setHeader("content-type", "application/json")
    response.end(JSON.stringify(about))
  })
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve))
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`
  return {
    url,
    async close() {
      server.closeAllConnections()
      await new Promise((resolve) => server.close(resolve))
    },
  }
}
