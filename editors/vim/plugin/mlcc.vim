" Register the language server with vim-lsp (https://github.com/prabirshrestha/vim-lsp), if that is installed.
if exists('g:loaded_mlcc')
  finish
endif
let g:loaded_mlcc = 1

augroup mlcc_lsp
  autocmd!
  autocmd User lsp_setup call lsp#register_server({
        \ 'name': 'mlcc',
        \ 'cmd': {server_info -> [get(g:, 'mlcc_command', 'mlcc'), 'lsp']},
        \ 'allowlist': ['mlc', 'mls'],
        \ })
augroup END
