import { complete, type Options, readOptions } from "../../src/options/options.ts"

/** The options as they are used where a user wrote this, in one place alone. */
export function parseOptions(input: unknown): { options: Options; problems: string[] } {
  const { given, problems } = readOptions(input)
  return { options: complete(given), problems }
}
