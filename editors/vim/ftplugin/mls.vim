runtime! ftplugin/mlc.vim
setlocal formatprg<
