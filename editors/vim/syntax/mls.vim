if exists('b:current_syntax')
  finish
endif
runtime! syntax/mlc.vim
let b:current_syntax = 'mls'
