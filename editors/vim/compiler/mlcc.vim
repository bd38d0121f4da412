" :make checks the file, and the findings become the quickfix list.
let current_compiler = 'mlcc'
CompilerSet makeprg=mlcc\ --color\ never\ check\ %:S
CompilerSet errorformat=%f:%l:%c:\ %t%*[a-z][%*[EW]%n]:\ %m,%-G%.%#
