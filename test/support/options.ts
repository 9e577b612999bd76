import { FEATURES } from "../../src/features/index.ts"
import * as user from "../../src/opencode/user-config.ts"
import * as sources from "../../src/options/options.ts"
import { fillDefaults, type Options, optionsOf, readOptions } from "../../src/options/options.ts"

export const SPECS = optionsOf(FEATURES)
export const DEFAULTS: Options = Object.freeze(fillDefaults(SPECS, {}))

/** The options as they are used where a user wrote this, in one place alone. */
export function parseOptions(input: unknown, specs = SPECS): { options: Options; problems: string[] } {
  const { given, problems } = readOptions(specs, input)
  return { options: fillDefaults(specs, given), problems }
}

export const meet = (own: unknown, project: unknown) => sources.mergeOptions(SPECS, own, project)

export const optionsFrom = (given: unknown, own: user.UsersOptions) => user.optionsFrom(SPECS, given, own)
