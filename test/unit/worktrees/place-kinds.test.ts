import { describe, expect, test } from "vitest"
import { FEATURES } from "../../../src/features/index.ts"
import { hereKind, kindOf, type PlacePorts } from "../../../src/runtime/places/place.ts"
import { DEFAULTS } from "../../support/options.ts"
import { Rig } from "../../support/rig.ts"

const kinds = [hereKind, ...FEATURES.flatMap(({ place }) => place?.(DEFAULTS, {} as PlacePorts) ?? [])]

describe("the kinds of places", () => {
  test("a kind of place is found by the name of its place, and the names are unique", () => {
    const names = kinds.flatMap((kind) => kind.names)
    expect(names).toEqual(["here", "worktree"])
    expect(new Set(names).size).toBe(names.length)
    for (const kind of kinds) for (const name of kind.names) expect(kindOf(kinds, name)).toBe(kind)
  })

  test("an unknown place is an error that lists the known ones before anything is created", async () => {
    expect(() => kindOf(kinds, "moon")).toThrow('There is no place "moon" here. There are: "here", "worktree".')
    const rig = new Rig()
    await expect(rig.launch({ place: "moon" })).rejects.toThrow(/no place "moon"/)
    expect(rig.opencode.calls).not.toContain("createSession")
  })

  test("the parent's own folder is a place without anything to prepare, show, merge or archive", async () => {
    const here = await hereKind.open("here")
    await here.capture("bg_a", "/project")
    expect(await here.enter({ taskID: "bg_a", folder: "/project", timeLimit: 0 })).toEqual({
      directory: "/project",
      preface: "",
    })
    expect([await here.bringIn("bg_a", "/project"), await here.merge("bg_a", "/project")]).toEqual([
      { kind: "nothing" },
      { kind: "nothing" },
    ])
    expect(await here.archive("bg_a", "/project")).toMatchObject({ files: [], unsaved: [] })
    expect(await here.show("bg_a", "/project", 10)).toMatchObject({ files: [], diff: "" })
    expect(await here.clear("/project", ["bg_a"])).toEqual([])
    expect(await here.sweep("/project", () => false)).toEqual([])
    expect(await here.expire("/project", 0, true, () => false)).toEqual([])
    expect([hereKind.called("here"), hereKind.mayHaveLeft()]).toEqual(["", false])
  })
})
