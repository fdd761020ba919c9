/** The address that opens a folder in VS Code, on the machine that the folder is on. */
export const editorLink = (folder: string): string => `vscode://file${folder.startsWith("/") ? "" : "/"}${folder.replaceAll("\\", "/").split("/").map(encodeURIComponent).join("/").replaceAll("%3A", ":")}`;
