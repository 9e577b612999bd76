import type { AppFeature } from "../app.ts"
import { board } from "./board/feature.ts"
import { checks } from "./checks/feature.ts"
import { forks } from "./forks/feature.ts"
import { hosts } from "./hosts/feature.ts"
import { maps } from "./maps/feature.ts"
import { rateLimits } from "./rate-limits/feature.ts"
import { schemas } from "./schemas/feature.ts"
import { sharedCache } from "./shared-cache/feature.ts"
import { terminal } from "./terminal/feature.ts"
import { tries } from "./tries/feature.ts"
import { web } from "./web/feature.ts"
import { worktrees } from "./worktrees/feature.ts"

/** All features, one a line. Where several features take part in one decision, their order is that of the lines. */
export const FEATURES: readonly AppFeature[] = [
  forks,
  worktrees,
  hosts,
  schemas,
  checks,
  tries,
  maps,
  rateLimits,
  sharedCache,
  board,
  web,
  terminal,
]
