//! Finds in a source file what can be changed.

use std::collections::BTreeMap;
use std::ops::Range;

use syn::punctuated::Punctuated;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{BinOp, Expr, Lit, Meta, ReturnType, Stmt, Type, UnOp};

/// True for `let _ = ...;`.
fn is_underscore(statement: &Stmt) -> bool {
    matches!(statement, Stmt::Local(local) if matches!(local.pat, syn::Pat::Wild(_)))
}

/// Where a change is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Form {
    /// An expression is replaced by another one of its type.
    Expression,
    /// A statement is left out.
    Statement,
    /// Something is put at the beginning of a function's body.
    Beginning,
}

/// One change: what stands there instead, and how it is described.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    pub(crate) instead: String,
    pub(crate) what: String,
}

/// A place in a file and the changes to choose from.
#[derive(Debug, Clone)]
pub(crate) struct Point {
    pub(crate) bytes: Range<usize>,
    pub(crate) line: usize,
    pub(crate) form: Form,
    pub(crate) changes: Vec<Change>,
}

/// The constants of a crate whose values can be changed where they are used, and how.
pub(crate) type Constants = BTreeMap<String, &'static str>;

/// What a file is made of.
pub(crate) struct Found {
    pub(crate) points: Vec<Point>,
    /// Modules in other files that only tests have.
    pub(crate) test_modules: Vec<String>,
}

/// Adds the file's constants of types that can be calculated with.
pub(crate) fn constants(file: &syn::File, known: &mut Constants) {
    struct Collector<'a>(&'a mut Constants);
    impl Visit<'_> for Collector<'_> {
        fn visit_item_const(&mut self, item: &syn::ItemConst) {
            if let Type::Path(path) = &*item.ty
                && let Some(name) = path.path.get_ident()
            {
                let change = match name.to_string().as_str() {
                    "u8" | "u16" | "u32" | "u64" | "u128" | "usize" | "i32" | "i64" | "isize" => {
                        "+ 1"
                    }
                    "f32" | "f64" => "* 1.5",
                    "Duration" => "* 2",
                    _ => return,
                };
                self.0.insert(item.ident.to_string(), change);
            }
        }
    }
    Collector(known).visit_file(file);
}

/// Finds everything that can be changed in a file.
pub(crate) fn find(text: &str, file: &syn::File, constants: &Constants) -> Found {
    let mut finder = Finder {
        text,
        constants,
        found: Found {
            points: Vec::new(),
            test_modules: Vec::new(),
        },
    };
    finder.visit_file(file);
    finder.found
}

struct Finder<'a> {
    text: &'a str,
    constants: &'a Constants,
    found: Found,
}

/// True for tests, and for what other systems than this one have.
fn is_elsewhere(attributes: &[syn::Attribute]) -> bool {
    attributes.iter().any(|attribute| {
        let condition = || attribute.parse_args::<Meta>().ok();
        attribute.path().is_ident("test")
            || attribute.path().is_ident("cfg")
                && condition().is_some_and(|condition| holds(&condition) == Some(false))
    })
}

/// Whether a condition of `cfg` holds outside of tests; `None` if that is not known, as with
/// features.
fn holds(condition: &Meta) -> Option<bool> {
    let text = |value: &syn::MetaNameValue| match &value.value {
        Expr::Lit(literal) => match &literal.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    };
    let name = condition.path().get_ident()?.to_string();
    match (condition, name.as_str()) {
        (Meta::Path(_), "test" | "doctest") => Some(false),
        (Meta::Path(_), "unix") => Some(cfg!(unix)),
        (Meta::Path(_), "windows") => Some(cfg!(windows)),
        (Meta::NameValue(value), "target_os") => Some(text(value)? == std::env::consts::OS),
        (Meta::NameValue(value), "target_vendor") if text(value)? == "apple" => {
            Some(cfg!(target_vendor = "apple"))
        }
        (Meta::List(list), _) => {
            let inner = Punctuated::<Meta, syn::Token![,]>::parse_terminated;
            let inner = list.parse_args_with(inner).ok()?;
            let mut inner = inner.iter().map(holds);
            match name.as_str() {
                "not" => inner.next()?.map(|holds| !holds),
                "all" if inner.clone().any(|holds| holds == Some(false)) => Some(false),
                "all" if inner.all(|holds| holds == Some(true)) => Some(true),
                "any" if inner.clone().any(|holds| holds == Some(true)) => Some(true),
                "any" if inner.all(|holds| holds == Some(false)) => Some(false),
                _ => None,
            }
        }
        _ => None,
    }
}

/// The operators that one is exchanged for. Orders are changed where they differ least: in the case
/// of equality.
fn instead_of(operator: &BinOp) -> &'static [&'static str] {
    match operator {
        BinOp::Lt(_) => &["<=", ">="],
        BinOp::Le(_) => &["<", ">"],
        BinOp::Gt(_) => &[">=", "<="],
        BinOp::Ge(_) => &[">", "<"],
        BinOp::Eq(_) => &["!="],
        BinOp::Ne(_) => &["=="],
        BinOp::And(_) => &["||"],
        BinOp::Or(_) => &["&&"],
        BinOp::Add(_) => &["-"],
        BinOp::Sub(_) => &["+"],
        BinOp::Mul(_) => &["/"],
        BinOp::Div(_) => &["*"],
        BinOp::AddAssign(_) => &["-="],
        BinOp::SubAssign(_) => &["+="],
        BinOp::MulAssign(_) => &["/="],
        BinOp::DivAssign(_) => &["*="],
        _ => &[],
    }
}

/// True if an operand is the `let` of a chain, which stands nowhere else.
fn has_let(expression: &Expr) -> bool {
    match expression {
        Expr::Let(_) => true,
        Expr::Binary(binary) => has_let(&binary.left) || has_let(&binary.right),
        _ => false,
    }
}

/// Values that a function may return at once.
fn early_values(output: &ReturnType) -> &'static [&'static str] {
    let ReturnType::Type(_, ty) = output else {
        return &[""];
    };
    let Type::Path(path) = &**ty else {
        return &[];
    };
    let Some(last) = path.path.segments.last() else {
        return &[];
    };
    match last.ident.to_string().as_str() {
        "bool" => &["true", "false"],
        "Option" => &["None"],
        "Result" => &["Ok(Default::default())"],
        _ => &["Default::default()"],
    }
}

/// True if a function returns this and does nothing else.
fn is_already(block: &syn::Block, value: &str) -> bool {
    let [Stmt::Expr(only, None)] = &block.stmts[..] else {
        return false;
    };
    syn::parse_str::<Expr>(value).is_ok_and(|value| *only == value)
        || value == "Ok(Default::default())" && *only == syn::parse_quote!(Ok(()))
}

impl Finder<'_> {
    fn add(&mut self, spanned: &impl Spanned, form: Form, changes: Vec<Change>) {
        let span = spanned.span();
        if !changes.is_empty() {
            self.found.points.push(Point {
                bytes: span.byte_range(),
                line: span.start().line,
                form,
                changes,
            });
        }
    }

    fn text_of(&self, spanned: &impl Spanned) -> &str {
        &self.text[spanned.span().byte_range()]
    }

    /// Its text in one short line.
    fn short(&self, spanned: &impl Spanned) -> String {
        let words: Vec<_> = self.text_of(spanned).split_whitespace().collect();
        let text = words.join(" ");
        match text.char_indices().nth(48) {
            Some((end, _)) => format!("{}...", &text[..end]),
            None => text,
        }
    }

    fn on_function(&mut self, signature: &syn::Signature, block: &syn::Block) {
        if signature.constness.is_some() || signature.ident == "main" {
            return;
        }
        let values = early_values(&signature.output).iter();
        let values = values.filter(|value| !is_already(block, value));
        let name = &signature.ident;
        let changes = values.map(|value| Change {
            instead: format!("return {value};"),
            what: match *value {
                "" => format!("`{name}` does nothing"),
                value => format!("`{name}` returns `{value}`"),
            },
        });
        let brace = block.brace_token.span.open();
        let at = brace.byte_range().end;
        let changes: Vec<_> = changes.collect();
        // One that is empty, or names its arguments only, does nothing as it is.
        let does_nothing = block.stmts.iter().all(is_underscore);
        if !changes.is_empty() && !does_nothing {
            self.found.points.push(Point {
                bytes: at..at,
                line: signature.ident.span().start().line,
                form: Form::Beginning,
                changes,
            });
        }
        visit::visit_block(self, block);
    }

    fn on_binary(&mut self, whole: &Expr, binary: &syn::ExprBinary) {
        let operators = match binary.op {
            BinOp::And(_) | BinOp::Or(_) if has_let(&binary.left) || has_let(&binary.right) => &[],
            _ => instead_of(&binary.op),
        };
        let before = self.text_of(&binary.op).to_string();
        let (left, right) = (self.text_of(&*binary.left), self.text_of(&*binary.right));
        let changes = operators.iter().map(|operator| Change {
            instead: match operator.strip_suffix('=') {
                Some("-" | "+" | "*" | "/") => format!("{left} {operator} {right}"),
                _ => format!("({left}) {operator} ({right})"),
            },
            what: format!("`{before}` becomes `{operator}`"),
        });
        let changes = changes.collect();
        self.add(whole, Form::Expression, changes);
    }

    fn on_literal(&mut self, whole: &Expr, literal: &Lit) {
        let instead = match literal {
            Lit::Int(int) => {
                let Ok(value) = int.base10_parse::<u128>() else {
                    return;
                };
                // Upwards at zero, and never out of the smallest type.
                let value = match value {
                    0..100 => value + 1,
                    _ => value - 1,
                };
                format!("{value}{}", int.suffix())
            }
            Lit::Float(float) => format!("({} + 1.0)", float),
            Lit::Bool(value) => (!value.value).to_string(),
            _ => return,
        };
        let what = format!("`{}` becomes `{instead}`", self.text_of(whole));
        self.add(whole, Form::Expression, vec![Change { instead, what }]);
    }

    fn on_condition(&mut self, condition: &Expr) {
        if matches!(
            condition,
            Expr::Call(_) | Expr::MethodCall(_) | Expr::Path(_) | Expr::Field(_)
        ) {
            let instead = format!("!({})", self.text_of(condition));
            let what = format!("`{}` is negated", self.short(condition));
            self.add(condition, Form::Expression, vec![Change { instead, what }]);
        }
    }
}

impl Visit<'_> for Finder<'_> {
    fn visit_item(&mut self, item: &syn::Item) {
        let attributes = match item {
            syn::Item::Fn(item) => &item.attrs,
            syn::Item::Impl(item) => &item.attrs,
            syn::Item::Mod(item) => {
                if is_elsewhere(&item.attrs) && item.content.is_none() {
                    self.found.test_modules.push(item.ident.to_string());
                }
                &item.attrs
            }
            syn::Item::Trait(item) => &item.attrs,
            // What is constant cannot be switched.
            _ => return,
        };
        if !is_elsewhere(attributes) {
            visit::visit_item(self, item);
        }
    }

    fn visit_item_impl(&mut self, item: &syn::ItemImpl) {
        // What is printed for developers is of no interest, and a default has no other.
        let is_left_out = |path: &syn::Path| {
            let last = path.segments.last();
            last.is_some_and(|it| it.ident == "Debug" || it.ident == "Default")
        };
        let of_trait = item.trait_.as_ref();
        if !of_trait.is_some_and(|(_, path, _)| is_left_out(path)) {
            visit::visit_item_impl(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &syn::ItemFn) {
        self.on_function(&item.sig, &item.block);
    }

    fn visit_impl_item_fn(&mut self, item: &syn::ImplItemFn) {
        if !is_elsewhere(&item.attrs) {
            self.on_function(&item.sig, &item.block);
        }
    }

    fn visit_trait_item_fn(&mut self, item: &syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.on_function(&item.sig, block);
        }
    }

    fn visit_impl_item_const(&mut self, _: &syn::ImplItemConst) {}

    fn visit_trait_item_const(&mut self, _: &syn::TraitItemConst) {}

    fn visit_type(&mut self, _: &Type) {}

    fn visit_generic_argument(&mut self, _: &syn::GenericArgument) {}

    fn visit_pat(&mut self, _: &syn::Pat) {}

    fn visit_attribute(&mut self, _: &syn::Attribute) {}

    fn visit_stmt(&mut self, statement: &Stmt) {
        if let Stmt::Expr(expression, Some(_)) = statement {
            let call = match expression {
                Expr::Try(attempt) => &attempt.expr,
                other => other,
            };
            // To reserve memory changes nothing that a test could see.
            let reserves = matches!(call, Expr::MethodCall(it) if it.method == "reserve");
            if matches!(call, Expr::Call(_) | Expr::MethodCall(_)) && !reserves {
                let what = format!("`{}` is left out", self.short(statement));
                let instead = String::new();
                self.add(statement, Form::Statement, vec![Change { instead, what }]);
            }
        }
        visit::visit_stmt(self, statement);
    }

    fn visit_expr_repeat(&mut self, repeat: &syn::ExprRepeat) {
        // The length is constant.
        self.visit_expr(&repeat.expr);
    }

    fn visit_expr_if(&mut self, expression: &syn::ExprIf) {
        self.on_condition(&expression.cond);
        visit::visit_expr_if(self, expression);
    }

    fn visit_expr(&mut self, expression: &Expr) {
        match expression {
            Expr::Const(_) => return,
            Expr::Binary(binary) if binary.attrs.is_empty() => self.on_binary(expression, binary),
            Expr::Unary(unary) if matches!(unary.op, UnOp::Not(_)) => {
                let instead = self.text_of(&*unary.expr).to_string();
                let what = format!("`{}` without `!`", self.short(expression));
                self.add(expression, Form::Expression, vec![Change { instead, what }]);
            }
            Expr::Lit(literal) if literal.attrs.is_empty() => {
                self.on_literal(expression, &literal.lit);
            }
            Expr::Path(path) => {
                if let Some(last) = path.path.segments.last()
                    && let Some(change) = self.constants.get(&last.ident.to_string())
                {
                    let instead = format!("({} {change})", self.text_of(expression));
                    let what = format!("`{}` becomes `{instead}`", self.text_of(expression));
                    self.add(expression, Form::Expression, vec![Change { instead, what }]);
                }
            }
            _ => {}
        }
        visit::visit_expr(self, expression);
    }
}
