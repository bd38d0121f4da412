if exists('b:current_syntax')
  finish
endif

syntax keyword mlcKeyword assert break class continue def elif else for if lambda pass return while with
syntax keyword mlcInclude import from as
syntax keyword mlcConstant True False None
syntax keyword mlcOperator and or not in is
syntax keyword mlcSelf cls range

syntax match mlcNumber '\<\d[0-9_]*\>'
syntax match mlcNumber '\<0[xX][0-9a-fA-F_]\+\>\|\<0[oO][0-7_]\+\>\|\<0[bB][01_]\+\>'
syntax match mlcFloat '\<\d[0-9_]*\.[0-9_]*\%([eE][+-]\=\d\+\)\=\|\<\d[0-9_]*[eE][+-]\=\d\+'
syntax match mlcModule '\<\%(R\|T\|I\|relax\|tir\|sch\)\ze\.' nextgroup=mlcMember
syntax match mlcMember '\.[A-Za-z0-9_.]\+' contained
syntax match mlcDecorator '@[A-Za-z0-9_.]\+'
syntax match mlcFunction '\%(\<def\s\+\|\<class\s\+\)\@<=\w\+'
syntax match mlcComment '#.*$' contains=mlcPasses,mlcTodo
syntax match mlcPasses '#\s*PASSES:.*$' contained
syntax keyword mlcTodo TODO FIXME XXX contained

syntax match mlcEscape '\\.' contained
syntax region mlcString start='"' skip='\\.' end='"' oneline contains=mlcEscape,mlcDtype
syntax region mlcString start="'" skip='\\.' end="'" oneline contains=mlcEscape,mlcDtype
syntax region mlcString start='"""' skip='\\.' end='"""' contains=mlcEscape
syntax region mlcString start="'''" skip='\\.' end="'''" contains=mlcEscape
syntax match mlcDtype '\%(u\=int\|b\=float\)\d\+\%(x\d\+\)\=\|\<\%(bool\|handle\|void\)\>' contained

highlight default link mlcKeyword Statement
highlight default link mlcInclude Include
highlight default link mlcConstant Boolean
highlight default link mlcOperator Operator
highlight default link mlcSelf Identifier
highlight default link mlcNumber Number
highlight default link mlcFloat Float
highlight default link mlcModule Structure
highlight default link mlcMember Function
highlight default link mlcDecorator PreProc
highlight default link mlcFunction Function
highlight default link mlcComment Comment
highlight default link mlcPasses SpecialComment
highlight default link mlcTodo Todo
highlight default link mlcString String
highlight default link mlcEscape SpecialChar
highlight default link mlcDtype Type

let b:current_syntax = 'mlc'
