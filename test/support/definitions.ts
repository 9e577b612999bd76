/** The arguments of superagents_task that came with results, the night shift and other machines: they have a budget of their own. */
const LATER = ["schema", "unpark", "tries", "each", "guard"]

type Parameters = { readonly properties?: Readonly<Record<string, unknown>> }

/** A definition's parameters without those arguments. */
export const withoutLater = <Given extends Parameters>({ properties = {}, ...rest }: Given) => ({
  ...rest,
  properties: Object.fromEntries(Object.entries(properties).filter(([name]) => !LATER.includes(name))),
})
