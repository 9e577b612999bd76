/** Error message of a response. */
export async function errorIn(response: Response): Promise<string> {
  try {
    return String(((await response.json()) as { error: string }).error)
  } catch {
    return `The server answered with status ${response.status}.`
  }
}
