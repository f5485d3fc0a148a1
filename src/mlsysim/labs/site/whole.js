// What was compressed at build time; a host may have taken it for compressed by itself, and the browser have undone it.
export async function whole(response, type = "") {
  const bytes = await response.arrayBuffer();
  const [one, two] = new Uint8Array(bytes, 0, 2);
  const headers = { "Content-Type": type };
  if (one !== 0x1f || two !== 0x8b) return new Response(bytes, { headers });
  return new Response(new Response(bytes).body.pipeThrough(new DecompressionStream("gzip")), { headers });
}
