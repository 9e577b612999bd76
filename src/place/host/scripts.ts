/** What is run on a host to send files there and bring them home: lines of POSIX shell, pure. Paths are absolute. */

export const quoted = (text: string): string => `'${text.replaceAll("'", "'\\''")}'`

/**
 * No hook, no helper that stays, no clean-up, files byte for byte, and in our own name: as for git here. What git LFS keeps is
 * not there, and what it would keep there does not come home: it does nothing.
 */
const GIT = [
  'g() { git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 -c maintenance.auto=false -c core.autocrlf=false -c core.safecrlf=false -c core.quotePath=false -c advice.detachedHead=false -c advice.addEmbeddedRepo=false -c submodule.recurse=false -c filter.lfs.smudge= -c filter.lfs.clean= -c filter.lfs.process= -c filter.lfs.required=false "$@"; }',
  "export LC_ALL=C GIT_TERMINAL_PROMPT=0 GIT_AUTHOR_NAME=superagents GIT_AUTHOR_EMAIL=superagents@localhost GIT_COMMITTER_NAME=superagents GIT_COMMITTER_EMAIL=superagents@localhost",
  "unset GIT_DIR GIT_WORK_TREE GIT_INDEX_FILE",
].join("\n")

/** Removes a folder for a shell, also where parts of it may not be written. */
const REMOVE =
  'gone() { [ ! -e "$1" ] || rm -rf "$1" 2>/dev/null || { find "$1" -type d -exec chmod u+rwx {} \\; ; rm -rf "$1"; }; }'

const script = (...lines: readonly string[]): string => [GIT, REMOVE, ...lines].join("\n")

/** The folder of a repository's tasks on a host. */
export type Rooms = { readonly room: string; readonly store: string }

export const roomsIn = (cache: string, key: string): Rooms => {
  const room = `${cache}/opencode-superagents/${key}`
  return { room, store: `${room}/store` }
}

export const folderIn = ({ room }: Rooms, taskID: string): string => `${room}/work/${taskID}`

/** Makes the store; prints git's version, then the commits that the store has under a ref. */
export const lookScript = ({ room, store }: Rooms): string =>
  script(
    "command -v git >/dev/null 2>&1 || exit 127",
    "git --version",
    `umask 077; mkdir -p ${quoted(`${room}/work`)} || exit 1`,
    `[ -d ${quoted(store)} ] || { g init -q --bare ${quoted(`${store}.new`)} && mv ${quoted(`${store}.new`)} ${quoted(store)}; } || exit 1`,
    `g -C ${quoted(store)} for-each-ref --format='%(objectname)' refs/have`,
  )

export type Receiving = {
  readonly rooms: Rooms
  readonly taskID: string
  readonly commit: string
  /** The ref under which the bundle has it; absent where nothing is sent, since the store has it. */
  readonly ref?: string
  /** Commits whose parents are not here either. */
  readonly shallow: readonly string[]
  /** The folder is there, and its state committed: it goes on with what git ignores in it. */
  readonly inPlace?: boolean
}

/** Beside a worktree's index: it is whole. */
const MADE = "superagents-made"

/**
 * Takes the bundle on its stdin into the store, and makes a task's folder of its commit. Its mark comes last: a folder
 * without it was cut off while it was made, and what it lacks nobody has deleted.
 */
export function receiveScript({ rooms, taskID, commit, ref, shallow, inPlace = false }: Receiving): string {
  const folder = quoted(folderIn(rooms, taskID))
  const bundle = quoted(`${rooms.room}/${taskID}.bundle`)
  const have = `refs/have/${taskID}`
  const take = [
    `cat >${bundle} || { rm -f ${bundle}; exit 1; }`,
    ...(shallow.length > 0
      ? [
          `printf '%s\\n' ${shallow.join(" ")} | cat - shallow 2>/dev/null | sort -u >shallow.new && mv shallow.new shallow`,
        ]
      : []),
    `g fetch -q --no-tags --no-write-fetch-head --update-shallow ${bundle} +${ref}:${have} || { rm -f ${bundle}; exit 1; }`,
    `rm -f ${bundle}`,
  ]
  const received = [
    `cd ${quoted(rooms.store)} || exit 1`,
    ...(ref === undefined ? [`g update-ref ${have} ${commit} || exit 1`] : take),
    `g cat-file -e ${commit}^{tree} || exit 1`,
  ]
  if (inPlace)
    return script(
      ...received,
      `cd ${folder} || exit 1`,
      // First on no branch: what the agent has made of its own stays where it is.
      "g checkout -q --detach || exit 1",
      `g reset -q --mixed refs/work/${taskID} || exit 1`,
      `g checkout -q --detach --force ${commit} || exit 1`,
    )
  return script(
    ...received,
    `gone ${folder}`,
    "for n in 1 2 3; do",
    "  g worktree prune",
    `  g worktree add --detach --force ${folder} ${commit} >/dev/null && cd ${folder} && : >"$(g rev-parse --git-dir)/${MADE}" && exit 0`,
    "  sleep 1",
    "done",
    "exit 1",
  )
}

/**
 * Commits a folder's state; prints the commit, and what of it no commit can hold, one a line. The user's index there
 * stays as it is.
 */
export function commitScript(rooms: Rooms, taskID: string): string {
  const folder = quoted(folderIn(rooms, taskID))
  return script(
    `cd ${folder} 2>/dev/null && [ -e "$(g rev-parse --git-dir)/${MADE}" ] || exit 9`,
    `have=$(g rev-parse --verify -q refs/have/${taskID}) || exit 1`,
    "head=$(g rev-parse --verify HEAD) || exit 1",
    "i=$(mktemp) || exit 1",
    'trap \'rm -f "$i" "$i.lock"\' EXIT',
    'cp -p "$(g rev-parse --git-path index)" "$i" 2>/dev/null || rm -f "$i"',
    "GIT_INDEX_FILE=$i; export GIT_INDEX_FILE",
    '[ -e "$i" ] || g read-tree "$head" || exit 1',
    "nested=$(g ls-files --others --exclude-standard | sed -n 's,/$,,p')",
    "{ printf '.\\n'; [ -z \"$nested\" ] || printf '%s\\n' \"$nested\" | sed 's/^/:(exclude,top,literal)/'; } | g add --all --sparse --pathspec-from-file=- || exit 1",
    "tree=$(g write-tree) || exit 1",
    'if [ "$tree" = "$(g rev-parse "$head^{tree}")" ] && [ "$head" = "$have" ]; then c=$have',
    'elif g merge-base --is-ancestor "$have" "$head"; then c=$(g commit-tree "$tree" -p "$head" -m "superagents: its work") || exit 1',
    'else c=$(g commit-tree "$tree" -p "$head" -p "$have" -m "superagents: its work") || exit 1; fi',
    `g update-ref refs/work/${taskID} "$c" || exit 1`,
    'printf "%s\\n" "$c"',
    '[ -z "$nested" ] || printf "%s\\n" "$nested"',
  )
}

/** Prints a bundle of what a task's folder has that was not sent there. */
export const bundleScript = ({ store }: Rooms, taskID: string): string =>
  script(`g -C ${quoted(store)} bundle create -q - refs/work/${taskID} ^refs/have/${taskID}`)

/** The stores keep what they were sent last: what comes next is told from that. */
const KEPT = 20

/**
 * Removes a task's folder, and its ref; what it began with stays for the next one. `commit`: only where that is what was
 * kept of it last. The folder gets another name first: one that is half removed could be taken for what its agent deleted.
 */
export const removeScript = ({ room, store }: Rooms, taskID: string, commit?: string): string =>
  script(
    `cd ${quoted(store)} 2>/dev/null || exit 0`,
    ...(commit === undefined
      ? []
      : [`[ "$(g rev-parse --verify -q refs/work/${taskID})" = ${quoted(commit)} ] || exit 0`]),
    `f=${quoted(`${room}/work/${taskID}`)}`,
    '[ ! -e "$f" ] || { gone "$f.gone" && mv "$f" "$f.gone"; } || exit 1',
    'gone "$f.gone" && rm -rf "$f.job" && g worktree prune',
    `g update-ref -d refs/work/${taskID}`,
    `g for-each-ref --sort=-creatordate --format='%(refname)' refs/have | sed 1,${KEPT}d | while read -r r; do g update-ref -d "$r"; done`,
    '[ ! -e "$f.gone" ]',
  )
