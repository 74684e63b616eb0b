/** Base64 and base64url without Buffer, which not every runtime has. */

/** The bytes of base64 text, padded or not, or null if it is not base64. */
export function decodeBase64(text: string): Uint8Array<ArrayBuffer> | null {
  const bare = text.replace(/={0,2}$/, "");
  if (!/^[A-Za-z0-9+/]*$/.test(bare) || bare.length % 4 === 1) return null;
  return Uint8Array.from(atob(bare), (character) => character.charCodeAt(0));
}

export function encodeBase64(bytes: Uint8Array): string {
  return btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
}

/** The bytes of canonical base64url text without padding, or null if it is not. */
export function decodeBase64url(text: string): Uint8Array<ArrayBuffer> | null {
  const bytes = decodeBase64(text.replaceAll("-", "+").replaceAll("_", "/"));
  return bytes && encodeBase64url(bytes) === text ? bytes : null;
}

export function encodeBase64url(bytes: Uint8Array): string {
  return encodeBase64(bytes).replaceAll("+", "-").replaceAll("/", "_").replace(/=+$/, "");
}
