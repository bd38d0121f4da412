-- Neovim 0.11 and later: `vim.lsp.enable("mlcc")` in init.lua starts this server.
return {
  cmd = { vim.g.mlcc_command or "mlcc", "lsp" },
  filetypes = { "mlc", "mls" },
  root_markers = { ".git" },
}
