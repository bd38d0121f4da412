// Starts `mlcc lsp` and connects it to the editor.
"use strict";

const vscode = require("vscode");
const { LanguageClient, TransportKind } = require("vscode-languageclient/node");

let client;

async function start() {
  const command = vscode.workspace.getConfiguration("mlcc").get("command", "mlcc");
  client = new LanguageClient(
    "mlcc",
    "mlcc",
    { command, args: ["lsp"], transport: TransportKind.stdio },
    { documentSelector: [{ language: "mlc" }, { language: "mls" }] },
  );
  try {
    await client.start();
  } catch (problem) {
    vscode.window.showErrorMessage(
      `mlcc: \`${command} lsp\` did not start (${problem.message}). Install it with pip install 'mlcc[lsp]', ` +
        "or set mlcc.command to its path.",
    );
  }
}

async function stop() {
  const running = client;
  client = undefined;
  if (running !== undefined && running.isRunning()) {
    await running.stop();
  }
}

async function restart() {
  await stop();
  await start();
}

async function activate(context) {
  context.subscriptions.push(
    vscode.commands.registerCommand("mlcc.restart", restart),
    vscode.workspace.onDidChangeConfiguration((event) => event.affectsConfiguration("mlcc.command") && restart()),
  );
  await start();
}

module.exports = { activate, deactivate: stop };
