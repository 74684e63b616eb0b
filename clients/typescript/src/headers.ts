/** Headers of a request in the forms in which runtimes have them. */

export type HeadersLike = Headers | Readonly<Record<string, string | readonly string[] | undefined>>;

/** All values of a header. The name is in lower case. `Headers` joins several values with a comma. */
export function headerValues(headers: HeadersLike, name: string): string[] {
  if (isHeaders(headers)) {
    const value = headers.get(name);
    return value === null ? [] : [value];
  }
  return Object.entries(headers)
    .filter(([header]) => header.toLowerCase() === name)
    .flatMap(([, value]) => (value === undefined ? [] : typeof value === "string" ? [value] : [...value]));
}

/** Whether it is a `Headers`, perhaps of another implementation than the global one. */
function isHeaders(headers: HeadersLike): headers is Headers {
  return typeof headers.get === "function";
}
