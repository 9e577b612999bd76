import { mapsTests } from "./many.ts"

mapsTests()
