"""The language server: diagnostics, hover, definitions, completion, symbols and formatting for editors.

`mlcc lsp` serves the Language Server Protocol over standard input and output; `server` alone needs pygls. What the
answers say is computed by the other modules, which know nothing of the protocol: `document` finds names and their
definitions in the tokens of a text that may be incomplete, `check` runs parser, verifier and lint.
"""
