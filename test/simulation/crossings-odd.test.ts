import { crossingTests, ONE_OF } from "./cross.ts"

crossingTests({ calls: "odd", oneOf: ONE_OF })
