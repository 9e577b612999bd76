import { crossingTests, ONE_OF } from "./cross.ts"

crossingTests({ calls: "even", oneOf: ONE_OF })
