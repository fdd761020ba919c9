/** Class names, those that hold. */
export const cx = (...names: (string | false | null | undefined)[]): string => names.filter(Boolean).join(" ");
