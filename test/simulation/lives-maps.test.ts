import { checksTests, mapsTests } from "./many.ts"

mapsTests()
checksTests()
