use super::*;

struct Nothing;
impl Host for Nothing {
    fn call(&mut self, args: Vec<Bytes>, _: bool) -> Called {
        match &args[0][..] {
            b"ping" => Called::Reply(Reply::Simple("PONG".into())),
            b"end" => Called::Ended,
            _ => Called::Refused("Unknown Redis command called from script".into()),
        }
    }
    fn may_call(&mut self, _: &[Bytes]) -> Option<bool> {
        Some(true)
    }
}

fn outcome(body: &str) -> Outcome {
    let script = Script { body: body.as_bytes(), keys: &[], args: &[], seed: 7 };
    match run(&script, &mut Nothing) {
        Outcome::Again => run_exactly(&script, &mut Nothing),
        outcome => outcome,
    }
}

#[test]
fn speed() {
    let start = std::time::Instant::now();
    for _ in 0..10_000 {
        assert_eq!(outcome("return 1"), Outcome::Reply(Reply::Int(1)));
    }
    eprintln!("{:?} each", start.elapsed() / 10_000);
    let start = std::time::Instant::now();
    eprintln!("{:?}", outcome("local x = 0 while true do x = x + 1 end"));
    eprintln!("{:?} for all steps", start.elapsed());
}
#[test]
fn speed_of_parts() {
    let time = |name: &str, f: &mut dyn FnMut()| {
        let start = std::time::Instant::now();
        for _ in 0..3000 {
            f()
        }
        eprintln!("{name} {:?}", start.elapsed() / 3000);
    };
    time("mlua new", &mut || {
        let _ = mlua::Lua::new_with(mlua::StdLib::NONE, mlua::LuaOptions::new());
    });
    time("mlua new libs", &mut || {
        let _ = mlua::Lua::new_with(
            mlua::StdLib::STRING | mlua::StdLib::TABLE | mlua::StdLib::MATH,
            mlua::LuaOptions::new(),
        );
    });
    let lua = mlua::Lua::new_with(
        mlua::StdLib::STRING | mlua::StdLib::TABLE | mlua::StdLib::MATH,
        mlua::LuaOptions::new(),
    )
    .unwrap();
    time("function", &mut || {
        lua.create_function(|_, _: mlua::MultiValue| Ok(mlua::MultiValue::new())).unwrap();
    });
    time("table", &mut || {
        lua.create_table().unwrap();
    });
    let t = lua.create_table().unwrap();
    time("set", &mut || {
        t.raw_set("abc", 1).unwrap();
    });
    lua.set_memory_limit(1 << 27).unwrap();
    time("function, limited", &mut || {
        lua.create_function(|_, _: mlua::MultiValue| Ok(mlua::MultiValue::new())).unwrap();
    });
    time("table, limited", &mut || {
        lua.create_table().unwrap();
    });
    time("set, limited", &mut || {
        t.raw_set("abc", 1).unwrap();
    });
    time("load", &mut || {
        lua.load("return 1").into_function().unwrap();
    });
    time("gc", &mut || {
        lua.gc_collect().unwrap();
    });
}
