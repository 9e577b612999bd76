import { INPUTS, type Input, pass } from "./inputs.ts"

/** Lives in which tasks wait until the provider has cached the beginning that they share with the first of their message. */
export const INPUTS_CACHED: readonly Input[] = [
  ...INPUTS,
  {
    name: "its parent launches three in one message",
    weight: 40,
    give: (world) => {
      // The first of them takes longer to begin than the others wait for it, or begins at once, or never ends.
      const kind = ["slow", "quick", "hanging"][world.launches % 3]
      for (const each of [kind, "quick", "working"]) void world.launch({ prompt: `DO ${each}` })
    },
  },
  { ...pass("the provider has forgotten their beginning", 240_000), weight: 40 },
]
