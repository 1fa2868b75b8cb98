// In a page that was written as one file: bytes that it carries, deflated, in base64. There it is a script of its own,
// which unpacks the others.

export async function packedIn(id) {
  const node = document.getElementById(id);
  const bytes = Uint8Array.from(atob(node.textContent), (it) => it.charCodeAt(0));
  node.textContent = "";
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Uint8Array(await new Response(stream).arrayBuffer());
}
