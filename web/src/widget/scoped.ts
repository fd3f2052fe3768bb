/**
 * The page's style sheet for a shadow root: what it says of the page, it says of the host; and a rem,
 * which would be the notebook's (13 pixels in one, 10 in another), is the page's own.
 */
export function scoped(css: string): string {
  return css
    .replace(/:root:not\(([^)]*)\)/g, ":host(:not($1))")
    .replace(/:root\[([^\]]*)\]/g, ":host([$1])")
    .replace(/:root/g, ":host")
    .replace(/(^|[},])\s*(html|body)\s*(?=[{,])/g, "$1:host")
    // Conditions keep theirs: there a rem is what the browser starts from.
    .replace(/(@[^{;]*\{)|(?<!\w)(\d*\.?\d+)rem\b/g, (_, condition?: string, size?: string) => condition ?? `${Number(size) * REM}px`);
}

const REM = 16;
