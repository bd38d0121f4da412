if exists('b:did_ftplugin')
  finish
endif
let b:did_ftplugin = 1

setlocal commentstring=#\ %s comments=b:#
setlocal expandtab shiftwidth=4 softtabstop=4
setlocal formatprg=mlcc\ fmt\ -
compiler mlcc

let b:undo_ftplugin = 'setlocal commentstring< comments< expandtab< shiftwidth< softtabstop< formatprg< makeprg< errorformat<'
