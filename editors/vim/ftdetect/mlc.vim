autocmd BufRead,BufNewFile *.mlc setfiletype mlc
autocmd BufRead,BufNewFile *.mls setfiletype mls
